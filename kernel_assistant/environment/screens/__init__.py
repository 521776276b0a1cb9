"""The screen: a first check of a candidate's text, before anything is compiled."""
