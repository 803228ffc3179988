"""Read a booster's trees from its file, with every bound checked, and compile them to predict a row in microseconds."""
