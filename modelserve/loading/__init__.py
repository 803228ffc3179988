"""Models on their way to serving: mirrored for ever, loaded beside the old ones, checked, warmed, swapped in one step.

No call is answered here. Called by `modelserve.service`, and by `modelserve.calls` for what serves now.
"""
