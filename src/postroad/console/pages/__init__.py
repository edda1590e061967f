"""The pages of the console, one module for each topic. A page asks the API and fills a template."""
