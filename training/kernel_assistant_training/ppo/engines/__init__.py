"""Engines that generate replies."""
