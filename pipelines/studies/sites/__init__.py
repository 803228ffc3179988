"""The study of sites: policies that route jobs among grid zones, against each other and against bounds."""
