"""The screen: a first look at a candidate's text, before anything is compiled."""
