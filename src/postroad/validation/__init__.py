"""The one vocabulary for values that people write: in files, requests, command lines and options of Spark."""
