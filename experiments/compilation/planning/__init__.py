"""What several compilation policies decide with; it knows only the interface and plain records."""
