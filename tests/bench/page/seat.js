// A seat in a page: its methods are called from outside.
import * as headwise from '../../../web/dist/index.js';
import { Seat } from '../seats/seat.mjs';

const loadScript = (url) => new Promise((resolve, reject) => {
  const script = document.createElement('script');
  script.src = String(url);
  script.onload = () => resolve();
  script.onerror = () => reject(new Error(`${url} did not load`));
  document.head.append(script);
});

globalThis.seat = new Seat({ isPage: true, threads: 1, headwise, loadScript });
