"""The pages of the console, a module for each topic. A page asks the API and fills a template."""
