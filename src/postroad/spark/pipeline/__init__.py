"""The pipeline on Spark: queues into tables, tables into a report; routes of a whole enterprise; dead letters again.

Everything works on DataFrames and can be used alone; `postroad pipeline` puts it together.
"""
