"""What single lessons bring with them: their data, tables and charts. Nothing else of the course
needs these.
"""
