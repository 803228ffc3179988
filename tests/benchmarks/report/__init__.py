"""How soon a report opens in a browser; run by hand, and by `make bench`."""
