"""Updates the weights from trajectories: selection of episodes, advantages, losses, and optimiser steps."""
