"""What a chapter consists of: its place in the course, claims, predictions, recordings, opening and ending."""
