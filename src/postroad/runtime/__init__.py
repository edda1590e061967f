"""What every process of ours needs: logs, files for their owner alone, supervised tasks."""
