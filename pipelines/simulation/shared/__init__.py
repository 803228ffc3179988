"""Machines on which jobs take what others leave idle, with reservations that follow measured use."""
