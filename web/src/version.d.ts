/** The version of package.json; web/build.mjs writes version.js. */
export declare const VERSION: string;
