"""What one read asks for, and how it is cut into splits."""
