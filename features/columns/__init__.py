"""Definitions of all features, one file per source. To add one, declare it in its file's dict and name it in a set."""
