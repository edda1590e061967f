"""The pipeline on Spark: queues into tables, tables into a report; routes of an enterprise; replay of dead letters.

All parts work on DataFrames and can be used alone. `postroad pipeline` puts them together.
"""
