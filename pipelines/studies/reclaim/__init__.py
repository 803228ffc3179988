"""Study of reclaiming while jobs run: reservations that follow measured use, against sizes fixed at submission."""
