"""What every Postroad process needs: logs, private files, supervised tasks, the garbage collector."""
