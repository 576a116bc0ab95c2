"""Requirements on the account before ``cdktf deploy``, and the cost of the deploy: read, judged, printed.

:mod:`facts` is what was read of a cloud, :mod:`checks` judges it and is pure, :mod:`aws` and :mod:`google` read, and
:mod:`costs` adds up list prices.
"""
