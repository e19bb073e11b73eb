"""What people with Macs reported: the table, a program per report, and bugs that give wrong values."""
