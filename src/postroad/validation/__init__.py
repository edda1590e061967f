"""The one vocabulary of values that people write: in files, requests, command lines and options of Spark."""
