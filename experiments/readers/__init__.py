"""Uploaded files to intermediate representations: one file per format; strict, bounded, no code execution.

A reader module defines ``READER``; it is found by being in this folder. ``read`` opens a file of any format.
"""
