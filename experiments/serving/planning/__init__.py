"""What several batching policies share: ``request_level``, a batch that runs until its longest answer is
done.
"""
