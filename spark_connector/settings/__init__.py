"""What a user sets: the options of a read, write or stream, and the Spark session."""
