"""Bulk prediction of missing facts: questions, jobs, files."""
