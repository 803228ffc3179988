"""The service's typed client: calls, tries and answers, for callers that wait and for those that do not.

No model and no data frame is loaded here. Called by schedulers, scripts and the commands.
"""
