// Work that never runs twice at the same time.

// Returns a function that runs `work`; calls while it runs lead to one more run afterwards.
export function oneAtATime(work) {
  let running = null;
  let again = false;
  return () => {
    again = true;
    running ??= repeat();
    return running;
  };

  async function repeat() {
    try {
      while (again) {
        again = false;
        await work();
      }
    } finally {
      // After an unexpected error, too, the next call runs it.
      running = null;
    }
  }
}
