"""The model that PPO trains: actor and critic, adapters, parts on several devices."""
