"""Steps that touch users' traffic: routes, shares, copies, and the checks of an engine that serves them."""
