"""Measures the product and its peers side by side in one run, and prints ratios.

Absolute figures drift by a factor of two within an hour on a shared machine; ratios hold.
"""
