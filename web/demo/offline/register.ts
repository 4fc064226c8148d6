/** Keeps the page for use without a network, where the browser and the address allow it (https or localhost). */
export function keepForOffline(): void {
  if (!import.meta.env.PROD || !('serviceWorker' in navigator)) return;
  navigator.serviceWorker.register(new URL('service-worker.js', document.baseURI)).catch(() => {
    // Forbidden or impossible here; the page works as before while it is open.
  });
}
