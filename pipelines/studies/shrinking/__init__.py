"""Studies of shrinking requests on jobs drawn from a trace: jobs gained, and jobs killed or slowed down."""
