"""Small builders of the models that papers use, and models from HF configurations."""
