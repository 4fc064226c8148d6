// Apart from the model's other files, so that the page can link it without loading the model.
export const LICENCE_URL = new URL('./wordnet-nano/LICENSE.txt', import.meta.url);
