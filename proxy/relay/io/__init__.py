"""What the relay's loop works with: polling, timers, accepting, who owns which socket."""
