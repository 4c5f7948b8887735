"""What the relay's loop works with: polling, timers, accepting, pipes, who owns which socket."""
