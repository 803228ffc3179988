"""Study of shrinking requests: gains and harm over loads, mixes, policies and parts of the method, on drawn jobs."""
