/* global chrome -- what an extension talks to its browser with */
import { attend } from './attend.js';

const show = (id, value) => {
  document.getElementById(id).textContent = JSON.stringify(value);
};
try {
  show('page', await attend());
} catch (error) {
  show('page', String(error));
}
show('worker', await chrome.runtime.sendMessage('attend'));
