"""What finished jobs teach: their feedback, the floors and brakes it sets, the drift it shows, and its erasure.

Nothing is trained here, and no SQL is written: that is `modelserve.store`'s.
Called by `modelserve.service` and the routes.
"""
