// openai for JavaScript against the server at $URL: prints what it got (`works`), or its exceptions (`mistakes`).
import OpenAI from 'openai';

const client = new OpenAI({ apiKey: process.env.KEY, baseURL: process.env.URL, maxRetries: 0 });
const hello = { max_tokens: 5, messages: [{ content: process.env.HELLO, role: 'user' }], model: 'any', temperature: 0 };
const weather = JSON.parse(process.env.WEATHER);

async function whole() {
	const answer = await client.chat.completions.create(hello);
	return answer.choices[0].message.content;
}

async function stream() {
	let text = '';
	for await (const chunk of await client.chat.completions.create({ ...hello, stream: true })) {
		text += chunk.choices[0]?.delta?.content ?? '';
	}
	return text;
}

async function tools() {
	const answer = await client.chat.completions.create({
		...hello,
		cache_prompt: false, // what is reused of a prompt changes the text a little
		max_tokens: 100,
		messages: [
			{ content: process.env.QUESTION, role: 'user' },
			{ content: process.env.OPENING, role: 'assistant' }
		],
		tool_choice: 'required',
		tools: [{ function: { name: 'rain', parameters: weather }, type: 'function' }]
	});
	return answer.choices[0].message.tool_calls.map((call) => JSON.parse(call.function.arguments));
}

async function responses() {
	return (await client.responses.create({ input: process.env.HELLO, max_output_tokens: 5, model: 'any', temperature: 0 })).output_text;
}

async function mistakes() {
	const { KEY, LOADING_URL, TOO_LONG, URL } = process.env;
	return {
		loading: await mistake(KEY, LOADING_URL, process.env.HELLO),
		'too long': await mistake(KEY, URL, TOO_LONG),
		'wrong key': await mistake('wrong', URL, process.env.HELLO)
	};
}

async function mistake(apiKey, baseURL, content) {
	const asked = new OpenAI({ apiKey, baseURL, maxRetries: 0 }).chat.completions.create({
		...hello,
		messages: [{ content, role: 'user' }]
	});
	return asked.then(
		() => [],
		(error) => [error.constructor.name, error.status, error.type, error.message]
	);
}

async function works() {
	return { responses: await responses(), stream: await stream(), tools: await tools(), whole: await whole() };
}

console.log(JSON.stringify(await { mistakes, works }[process.argv[2]]()));
