/* global chrome -- what an extension talks to its browser with */
// A service worker: import() is forbidden here, and there is no document.
import { attend } from './attend.js';

chrome.runtime.onMessage.addListener((message, sender, answer) => {
  attend().then(answer, (error) => answer(String(error)));
  return true;
});
