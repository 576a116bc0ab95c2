"""What the account must have before ``cdktf deploy``, and what the deploy will cost: read, judged, printed.

:mod:`facts` is what was read of a cloud, :mod:`checks` judges it and is pure, :mod:`aws` and :mod:`google` read, and
:mod:`costs` adds up list prices.
"""
