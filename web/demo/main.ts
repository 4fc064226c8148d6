// The page: state in, panels out. The model runs in a worker (engine.ts); everything shown comes from its last result.
import { byId, pieceName } from './dom.js';
import { Engine } from './engine.js';
import { averageMap, compareHeads } from './head-stats.js';
import { drawBar, whenResized } from './heatmap.js';
import { LICENCE_URL } from './models/licence.js';
import { keepForOffline } from './offline/register.js';
import { AveragePanel } from './panels/average.js';
import { CloseUpPanel } from './panels/close-up.js';
import { HeadsPanel } from './panels/heads.js';
import { SentencePanel } from './panels/sentence.js';
import { StatusStrip } from './panels/status.js';
import type { View } from './panels/view.js';
import type { Failure, ModelFacts, ResultReply } from './protocol.js';
import { currentScheme, setUpTheme } from './theme.js';
import { isState, readState, writeState } from './url-state.js';

/** Screen readers hear of a change at most this often. */
const ANNOUNCE_EVERY_MS = 1000;

/** The address follows when nothing has changed for this long. */
const ADDRESS_AFTER_MS = 250;

const state = readState(location.hash);
let model: ModelFacts | undefined;
let result: ResultReply | undefined;

const stretch = byId('stretch', HTMLInputElement);
const failure = byId('failure', HTMLElement);

const sentence = new SentencePanel({
  onText(text) {
    state.text = text;
    engine.ask(text);
  },
  onQuery: chooseQuery,
});
const heads = new HeadsPanel({
  onQuery: chooseQuery,
  onHead(layer, head) {
    state.layer = layer;
    state.head = head;
    draw();
  },
});
const closeUp = new CloseUpPanel();
const average = new AveragePanel(chooseQuery);
const strip = new StatusStrip();

const engine = new Engine({
  onReady(reply) {
    model = reply.model;
    failure.hidden = true;
    strip.show(reply.report);
    keepForOffline();
  },
  onResult(reply) {
    keepQuery(reply);
    result = reply;
    for (const panel of document.querySelectorAll<HTMLElement>('.needs-result')) panel.hidden = false;
    sentence.showFills(reply.fills);
    strip.show(reply.report, { milliseconds: reply.milliseconds, pieces: reply.maps.length });
    draw();
  },
  onFailure: showFailure,
});

function chooseQuery(query: number): void {
  state.query = query;
  draw();
}

/** The asking piece stays the same word when text is added or removed around it, and stays inside the sentence. */
function keepQuery(next: ResultReply): void {
  const { pieces } = next.encoding;
  const before = result?.encoding.pieces;
  const asking = before?.[state.query];
  if (before && asking !== undefined && pieces[state.query] !== asking) {
    const fromEnd = pieces.length - (before.length - state.query);
    const first = pieces.indexOf(asking);
    if (pieces[fromEnd] === asking) state.query = fromEnd;
    else if (first >= 0) state.query = first;
  }
  // The last word, not [SEP]; an empty sentence has only [CLS] and [SEP].
  if (state.query >= pieces.length) state.query = Math.max(0, pieces.length - 2);
}

function currentView(): View | undefined {
  if (!result) return undefined;
  const { maps, encoding } = result;
  state.layer = Math.min(state.layer, maps.layers - 1);
  state.head = Math.min(state.head, maps.heads - 1);
  return {
    maps,
    average: averageMap(maps),
    names: encoding.pieces.map(pieceName),
    query: state.query,
    layer: state.layer,
    head: state.head,
    style: {
      scheme: currentScheme(),
      stretch: stretch.checked,
      query: state.query,
      accent: getComputedStyle(document.documentElement).getPropertyValue('--mark').trim(),
    },
  };
}

function draw(): void {
  drawBar(byId('bar', HTMLCanvasElement), currentScheme());
  const view = currentView();
  if (!view || !result || !model) return;
  sentence.showPieces(result.encoding, state.query, model.limit);
  for (const asking of document.querySelectorAll('.asking-word')) asking.textContent = view.names[view.query]!;
  heads.show(view);
  closeUp.show(view);
  average.show(view);
  scheduleAddress();
  announce(view);
}

let addressing: ReturnType<typeof setTimeout> | undefined;

/** Not on every key: browsers allow some hundred changes of the address in half a minute. */
function scheduleAddress(): void {
  clearTimeout(addressing);
  addressing = setTimeout(() => {
    history.replaceState(null, '', `${location.pathname}${location.search}${writeState(state)}`);
  }, ADDRESS_AFTER_MS);
}

let announced = 0;
let announcing: ReturnType<typeof setTimeout> | undefined;

function announce(view: View): void {
  clearTimeout(announcing);
  const wait = Math.max(0, announced + ANNOUNCE_EVERY_MS - performance.now());
  announcing = setTimeout(() => {
    announced = performance.now();
    const { targets } = compareHeads(view.maps, view.average, view.query);
    const places = targets.length === 1 ? 'one place' : `${targets.length} different places`;
    byId('announcement', HTMLParagraphElement).textContent =
      `“${view.names[view.query]}” asks: ${view.maps.layers * view.maps.heads} heads look most at ${places}.`;
  }, wait);
}

function showFailure({ step, message }: Failure): void {
  byId('failure-title', HTMLHeadingElement).textContent = `Could not ${step}`;
  byId('failure-message', HTMLParagraphElement).textContent = message;
  byId('failure-advice', HTMLParagraphElement).textContent =
    'If a filter or a security policy blocks WebAssembly here, allow it for this page; if the network failed, check it.';
  failure.hidden = false;
  strip.say(`Not running: could not ${step}`);
}

byId('retry', HTMLButtonElement).addEventListener('click', () => {
  strip.say('Trying again…');
  engine.start();
  engine.ask(state.text);
});
stretch.addEventListener('change', () => {
  const most = stretch.checked ? 'strongest of its row' : '100\u202f%';
  showBarNumbers(most);
  draw();
});

function showBarNumbers(most: string): void {
  const numbers = stretch.checked ? ['0', 'half', most] : ['0', '25', '50', '75', most];
  byId('bar-numbers', HTMLDivElement).replaceChildren(
    ...numbers.map((number) => Object.assign(document.createElement('span'), { textContent: number })),
  );
}

whenResized(draw);
window.addEventListener('hashchange', () => {
  if (!isState(location.hash)) return;
  Object.assign(state, readState(location.hash));
  sentence.setText(state.text);
  engine.ask(state.text);
});

setUpTheme(draw);
showBarNumbers('100\u202f%');
byId('licence', HTMLAnchorElement).href = LICENCE_URL.href;
sentence.setText(state.text);
engine.start();
engine.ask(state.text);
