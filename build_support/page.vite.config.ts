// llama.cpp's own build of its user interface, and with it the licences of all that goes into the page.
// Copied next to upstream's vite.config.ts; PYGGML_NOTICES names the file that is written.
import upstream from './vite.config';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { mergeConfig, type Plugin } from 'vite';

const MODULES = 'node_modules';
// what reaches the page by other ways than imports of scripts: style sheets, and the service worker's library
const OTHERS = ['tailwindcss', '@tailwindcss/forms', '@tailwindcss/typography', 'tw-animate-css'];
const WORKBOX = readdirSync(MODULES).filter((name) => name.startsWith('workbox-') && name !== 'workbox-build');

function packageOf(id: string): string | undefined {
	const inside = id.split(`/${MODULES}/`);
	if (inside.length < 2) return undefined;
	const parts = inside[inside.length - 1].split('/');
	const name = parts.slice(0, parts[0].startsWith('@') ? 2 : 1).join('/');
	return [...inside.slice(0, -1), name].join(`/${MODULES}/`);
}

function notice(folder: string): string {
	const about = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf-8'));
	const texts = licences(folder).map((path) => readFileSync(path, 'utf-8').trim());
	return [`${about.name} ${about.version} (${about.license ?? 'see below'})`, ...texts].join('\n\n');
}

function licences(folder: string): string[] {
	return readdirSync(folder)
		.filter((name) => /^(licen[cs]e|copying|notice)/i.test(name))
		.map((name) => join(folder, name));
}

function vendored(folder: string): string[] {
	const inside = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory());
	return inside.map(({ name }) =>
		[name, ...licences(join(folder, name)).map((path) => readFileSync(path, 'utf-8').trim())].join('\n\n')
	);
}

function notices(): Plugin {
	return {
		apply: 'build',
		generateBundle() {
			if (this.environment.name !== 'client') return;
			const bundled = [...this.getModuleIds()].map((id) => packageOf(id.split('?')[0].replace('\0', '')));
			const others = [...OTHERS, ...WORKBOX].map((name) => join(process.cwd(), MODULES, name));
			const folders = new Set([...bundled, ...others].filter((path) => path && existsSync(join(path, 'package.json'))));
			const all = [...vendored('src/lib/vendors'), ...[...folders].sort().map((path) => notice(path as string))];
			writeFileSync(process.env.PYGGML_NOTICES as string, all.join(`\n\n${'-'.repeat(80)}\n\n`) + '\n');
		},
		name: 'pyggml:notices'
	};
}

export default async (env: Parameters<typeof upstream>[0]) =>
	mergeConfig(await upstream(env), { plugins: [notices()] });
