// Keeps the page's files, so that it opens again without a network. vite.config.ts puts the two constants in front:
// FILES, every file of the build, and VERSION, a hash of them.
/* global FILES, VERSION */

const PREFIX = 'headwise-demo ';
const CACHE = `${PREFIX}${self.registration.scope} ${VERSION}`;

self.addEventListener('install', (event) => {
  event.waitUntil(
    (async () => {
      const cache = await caches.open(CACHE);
      await cache.addAll(FILES);
      await self.skipWaiting();
    })(),
  );
});

self.addEventListener('activate', (event) => {
  event.waitUntil(
    (async () => {
      // Older builds of this page only: other pages of the same server may be like it, under other addresses.
      const old = (await caches.keys()).filter(
        (name) => name.startsWith(`${PREFIX}${self.registration.scope} `) && name !== CACHE,
      );
      await Promise.all(old.map((name) => caches.delete(name)));
      await self.clients.claim();
    })(),
  );
});

self.addEventListener('fetch', (event) => {
  if (event.request.method === 'GET') event.respondWith(answer(event.request));
});

/** The network first, so that a new build is seen at once; the kept file when there is none. */
async function answer(request) {
  try {
    return await fetch(request);
  } catch (error) {
    const cache = await caches.open(CACHE);
    // The page itself is asked for by its folder.
    const kept =
      (await cache.match(request, { ignoreVary: true })) ??
      (request.mode === 'navigate' ? await cache.match('./') : undefined);
    if (kept) return kept;
    throw error;
  }
}
