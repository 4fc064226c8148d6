// vitest's global set-up of the project `package`: one tarball, installed once, for all its tests.
import { packAndInstall } from './pack.mjs';

export default async function setup(project) {
  const { remove, ...packed } = await packAndInstall();
  project.provide('packed', packed);
  return remove;
}
