"""Settings of users: the options of a read, write or stream, and the Spark session."""
