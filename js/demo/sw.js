// The service worker of the demo page: keeps its files, so that it works offline. The page keeps the models itself.
// assemble.mjs fills in the two constants; another version is another cache.
const VERSION = "development";
const FILES = [];
const CACHE = `bibert-demo-${VERSION}`;

self.addEventListener("install", (event) => {
  const requests = FILES.map((file) => new Request(file, { cache: "no-cache" }));
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(requests)).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  const isOld = (name) => name.startsWith("bibert-demo-") && name !== CACHE;
  const clean = async () => {
    for (const name of (await caches.keys()).filter(isOld)) await caches.delete(name);
    await self.clients.claim();
  };
  event.waitUntil(clean());
});

self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  const answer = async () => {
    const cache = await caches.open(CACHE);
    return (await cache.match(event.request, { ignoreSearch: true })) ?? fetch(event.request);
  };
  event.respondWith(answer());
});
