"""The model that PPO trains: actor and critic, LoRA adapters, and sharding over several devices."""
